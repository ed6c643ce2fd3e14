"""``python -m remit``."""

from remit.cli import main

if __name__ == "__main__":
    main()
