"""`python -m tokengraft` is the command `tokengraft`."""

from tokengraft.cli.main import run

if __name__ == "__main__":
    run()
