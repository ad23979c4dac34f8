-- How many records were made with a digest key; counting stops where the number says enough.
SELECT count(*) FROM (
  SELECT 1 FROM {table records} WHERE instr(request_recipe || ';', ';k=' || ?1 || ';') > 0 LIMIT 100000)
