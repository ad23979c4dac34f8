"""One charge, however often it is asked for: python3 charge.py KEY AMOUNT, with the database in DATABASE_URL.

It prints the verdict and the answer; a duplicate gets the answer of the first call.
"""

import hashlib
import json
import os
import sys
import time

import psycopg


def charge(key, amount):
    """Charges once per key and returns what idempo says and the answer to the caller."""
    request = hashlib.sha256(f"amount={amount}".encode()).digest()
    with psycopg.connect(os.environ["DATABASE_URL"]) as conn, conn.transaction():
        verdict, token, answer = conn.execute(
            "select verdict, token, response_body from idempo.claim('acct_7', 'charge', %s, %s, wait => '20 s')",
            (key, request),
        ).fetchone()
        if verdict == "run":
            (number,) = conn.execute(
                "insert into charges (account, amount) values ('acct_7', %s) returning id", (amount,)
            ).fetchone()
            answer = json.dumps({"charge": number}, separators=(",", ":")).encode()
            conn.execute(
                "select idempo.complete('acct_7', 'charge', %s, %s, status_code => 201, response_body => %s,"
                " resource_type => 'charge', resource_id => %s)",
                (key, token, answer, str(number)),
            )
    return verdict, answer  # the transaction is committed: claim, charge and answer together


def main(key, amount):
    for attempt in range(5):
        try:
            verdict, answer = charge(key, amount)
            break
        except psycopg.OperationalError:  # no answer: the same key again says what became of it
            if attempt == 4:
                raise
            time.sleep(0.1 * 2**attempt)
    print(verdict, (answer or b"").decode())


main(*sys.argv[1:])
