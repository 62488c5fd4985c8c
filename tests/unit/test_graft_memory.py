"""Whether a model is loaded for verification depends on the available memory."""

from __future__ import annotations

from tokengraft.grafting.verify import loading as verify_load


def test_files_kept_in_memory_make_room(tmp_path, monkeypatch):
    told = tmp_path / "meminfo"
    told.write_text("MemTotal: 24000 kB\nMemFree: 100 kB\nMemAvailable: 20000 kB\n")
    assert verify_load._available(told) == 20000 * 1024
    monkeypatch.setattr(verify_load, "_available", lambda: 20000 * 1024)
    assert verify_load.fits_memory(13000 * 1024) and not verify_load.fits_memory(14000 * 1024)


def test_other_systems_say_what_is_free_or_nothing(tmp_path, monkeypatch):
    assert (verify_load._available(tmp_path / "none") or 1) > 0
    monkeypatch.setattr(verify_load, "_available", lambda: None)
    assert verify_load.fits_memory(1 << 30) and not verify_load.fits_memory(8 << 30)
