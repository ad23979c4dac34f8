// Package idempo makes one business intent have one effect, however often it arrives: a retried HTTP call, a redelivered
// message, a replayed webhook, a re-started script.
//
// An [Engine] stands over a [Store] and decides for every [Request]: run it, answer it from the record, or say why not.
// Every surface (package idemhttp, the gateway, and those to come) goes through [Engine.Do] or [Engine.Begin] and
// [Claim.Complete]; there is no second deduplication.
//
// # States of a key
//
//	issued ──claim──▶ pending ──complete──▶ completed ──retention──▶ expired (tombstone) ──▶ gone
//	                    │  ▲
//	                    │  └── failed (nothing happened; may run again) ◀── release
//	                    └────▶ in_doubt ──resolve: completed | failed, by probe or by a person
//
// A pending key has a lease on the store's clock, so a crashed owner blocks it for one lease at most. A failed one is
// only ever entered when it is known that nothing happened. In doubt is an answer of its own: an outside effect may have
// happened and nobody has proved either way; it is never turned into a blind second run.
//
// # Guards
//
//	             atomic                                  leased
//	effect       in the same database                    anywhere
//	how          claim, effect and result in one         claim commits; effect under a lease;
//	             transaction                             result commits, fenced by the token
//	crash        all rolls back; the retry runs          hold (in doubt), probe, or rerun
//	promise      at most one committed effect per key    at most one started effect per lease and token;
//	                                                     what is not provable is in doubt
//
// # What is never promised
//
// "Exactly once". A handler that answers success and did nothing is replayed as success. Two keys are two intents. Once a
// record and its tombstone are gone, the key is as new.
//
// # Stores and tests
//
// Stores live in packages of their own: sqlite, postgres (database/sql), contrib/pgx, and memstore for tests. Package
// storetest says when a store is right.
//
// Layer: domain. It imports the standard library only, and not net, net/http, database/sql, os/exec, testing or flag, even
// transitively.
package idempo
