"""`python -m lumos_df` is `lumos-df`."""

from lumos_df.cli.app import main

if __name__ == "__main__":
    main()
