-- One charge, however often it is asked for:
--
--   psql -X -q -A -t -v ON_ERROR_STOP=1 -v key=o-123 -v amount=12 -f charge.sql
--
-- It prints the verdict and the answer; a duplicate gets the answer of the first call.
begin;
select verdict, verdict = 'run' as won, token, coalesce(convert_from(response_body, 'UTF8'), '') as answer
from idempo.claim('acct_7', 'charge', :'key', sha256(convert_to('amount=' || :'amount', 'UTF8')), wait => '20 s') \gset
\if :won
    insert into charges (account, amount) values ('acct_7', :'amount') returning id \gset
    select '{"charge":' || :'id' || '}' as answer \gset
    select state from idempo.complete('acct_7', 'charge', :'key', :'token', status_code => 201,
        response_body => convert_to(:'answer', 'UTF8'), resource_type => 'charge', resource_id => :'id') \gset
\endif
commit;
select concat_ws(' ', :'verdict', :'answer');
