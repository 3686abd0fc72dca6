-- Nothing: Postgres compresses bodies in another way from here on. The numbers stay the same on both.
SELECT 1;
