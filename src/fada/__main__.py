"""`python -m fada`: the command line where its program is not on the path."""

from fada.cli import main

if __name__ == "__main__":
    main()
