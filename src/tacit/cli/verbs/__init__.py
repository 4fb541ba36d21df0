"""The verbs of the command, one file for each group; heavy imports happen here."""
