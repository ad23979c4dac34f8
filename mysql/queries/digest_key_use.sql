-- How many records were made with a digest key; counting stops where the number says enough.
select count(*) from (
    select 1 from {table records} where instr(concat(request_recipe, ';'), concat(';k=', $id, ';')) > 0 limit 100000) as those
