"""Files of a model hub, from its local cache or downloaded once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokengraft.core.errors import TokengraftError


def download(hub_id: str, patterns: Sequence[str], error: type[TokengraftError]) -> Path:
    """The folder with those files of `hub_id` that match; `error` says why there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(patterns)))
    except LocalEntryNotFoundError as reason:
        raise error(
            f"{hub_id} is not on this machine, and the model hub cannot be reached. Go online "
            "once, or give a folder that holds it."
        ) from reason
    except HfHubHTTPError as reason:
        raise error(
            f"the model hub refused {hub_id} ({reason.response.status_code}). Check the id; for a "
            "gated model accept its licence on the hub and run `hf auth login`."
        ) from reason
    except (OSError, RuntimeError, ValueError) as reason:
        raise error(f"{hub_id} could not be downloaded ({reason})") from reason
