"""One row a call: the spool on disk, the database, its schema, prices and the questions people ask."""
