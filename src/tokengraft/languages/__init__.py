"""Languages: codes, names, scripts and their groups, speakers. The single source."""
