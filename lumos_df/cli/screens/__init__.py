"""What each command shows when nobody asks for rows: the verdict, the few numbers behind it, what to try next."""
