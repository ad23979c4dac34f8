// One charge, however often it is asked for: node charge.js KEY AMOUNT, with the database in DATABASE_URL.
// It prints the verdict and the answer; a duplicate gets the answer of the first call.
'use strict';

const { createHash } = require('node:crypto');
const { setTimeout: pause } = require('node:timers/promises');
const { Client } = require('pg');

// charge charges once per key and returns what idempo says and the answer to the caller.
async function charge(key, amount) {
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  client.on('error', () => {}); // a lost connection also fails the query that waits for it
  await client.connect();
  try {
    await client.query('begin');
    const request = createHash('sha256').update(`amount=${amount}`).digest();
    const claim = await client.query(
      `select verdict, token, response_body from idempo.claim('acct_7', 'charge', $1, $2, wait => '20 s')`,
      [key, request],
    );
    const { verdict, token, response_body: stored } = claim.rows[0];
    let answer = stored;
    if (verdict === 'run') {
      const { rows } = await client.query(
        `insert into charges (account, amount) values ('acct_7', $1) returning id`,
        [amount],
      );
      answer = Buffer.from(`{"charge":${rows[0].id}}`);
      await client.query(
        `select idempo.complete('acct_7', 'charge', $1, $2, status_code => 201, response_body => $3,
           resource_type => 'charge', resource_id => $4)`,
        [key, token, answer, rows[0].id],
      );
    }
    await client.query('commit'); // claim, charge and answer together
    return [verdict, answer];
  } finally {
    await client.end().catch(() => {});
  }
}

async function main(key, amount) {
  for (let attempt = 0; ; attempt++) {
    try {
      const [verdict, answer] = await charge(key, amount);
      console.log(verdict, String(answer ?? ''));
      return;
    } catch (err) {
      // No answer: the same key again says what became of it. What the database refuses stays refused.
      const refused = err.code && /^[0-9A-Z]{5}$/.test(err.code) && !/^(08|40|57)/.test(err.code);
      if (refused || attempt === 4) throw err;
      await pause(100 * 2 ** attempt);
    }
  }
}

main(...process.argv.slice(2)).catch((err) => {
  console.error(err.message);
  process.exitCode = 1;
});
