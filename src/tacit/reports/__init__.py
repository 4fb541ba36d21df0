"""What is shown: the same plain data as text, and later as a page."""
