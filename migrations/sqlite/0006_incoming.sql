-- Nothing: Postgres has a type here, which SQLite has no need of. The numbers stay the same on both.
SELECT 1;
