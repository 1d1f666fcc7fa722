"""Where state that outlives a reply is kept: in memory, in files, in SQLite. JSON only, and every value has a version."""
