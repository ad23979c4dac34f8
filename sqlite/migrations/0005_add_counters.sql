-- What processes have counted, for the plots and the numbers that outlive them: a row for each process and stretch of time.
CREATE TABLE {table counters} (
  span INTEGER NOT NULL,
  start INTEGER NOT NULL,
  process TEXT NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (span, start, process)
) STRICT, WITHOUT ROWID;

-- down
DROP TABLE {table counters};
