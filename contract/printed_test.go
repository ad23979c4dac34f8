package contract_test

// What the shop of support_test.go promises, in every form. Whoever changes a form changes it here, and sees what callers will see.

const shopMarkdown = `# Shop: what a retry does

## Endpoints

| endpoint | group | operation or reason |
|---|---|---|
| ` + "`" + `POST /v1/accounts/{account}/mails/{rest}` + "`" + ` and below | keyed | send-mail |
| ` + "`" + `POST /v1/logs` + "`" + ` | not recognised: twice is twice | a line too many is no harm |
| ` + "`" + `POST /v1/payments` + "`" + ` | keyed | create-payment |
| ` + "`" + `PUT /v1/settings` + "`" + ` | natural: twice is once | sets the whole state |

GET, HEAD and OPTIONS change nothing and may always be repeated.

## POST /v1/accounts/{account}/mails/{rest}

| | |
|---|---|
| operation | ` + "`" + `send-mail` + "`" + ` |
| key | header ` + "`" + `Idempotency-Key` + "`" + `, optional: without it a repeat runs again, 1 to 255 bytes, issued by the service |
| guard | leased: one started effect per key and lease; what nobody can prove is in doubt |
| deduplicated | requests under one key that agree in method, path, query, media_type, body |
| not deduplicated | two different keys are two intents; what the service does outside this call |
| scope | two requests have one key where they share tenant, operation, key |
| answer kept for | 24 h (PT24H) |
| then refused for | ever |
| after a crash | in doubt until a person, or a late answer, settles it; never run again blindly |
| given again | 2XX, 3XX, 4XX, 502; a repeat carries ` + "`" + `Idempotent-Replayed: true` + "`" + ` |
| not kept | 401, 403, 404, 407, 408, 425, 429, 5XX: a 5XX of the service leaves the key in doubt, the others free it |

| status | means | retry? | same key? |
|---|---|---|---|
| 2XX | done, now or before | no | – |
| 400 | Idempotency key not valid; Key was not issued for this operation; Body ended early | as retryable says | as same_key says |
| 409 | First request still running; Key was used for another request; Outcome of the first request not known | as retryable says | as same_key says |
| 410 | Done; result has expired; Done; full result was not kept | no | no |
| 413 | Body too large | no | yes |
| 429 | Too many requests for this account | yes | yes |
| 503 | Try again; It may have happened | yes | yes |
| 4XX of the service | refused for good; a repeat gets the same refusal | no | no |
| 401, 403, 404, 407, 408, 425, 429 of the service | not now; nothing happened | yes | yes |
| 5XX of the service | it may have happened: a repeat is told in doubt until that is settled | yes | yes |

` + "`" + `` + "`" + `` + "`" + `sh
KEY=…   # as the service issued it; the same on every retry
curl -X POST -H "Idempotency-Key: $KEY" -H 'Content-Type: application/json' -d @body.json "$BASE/v1/accounts/ACCOUNT/mails/REST"
` + "`" + `` + "`" + `` + "`" + `

## POST /v1/payments

| | |
|---|---|
| operation | ` + "`" + `create-payment` + "`" + ` |
| key | header ` + "`" + `Idempotency-Key` + "`" + `, required, 1 to 255 bytes |
| guard | atomic: key, effect and answer commit together, or not at all |
| deduplicated | requests under one key that agree in method, path, query, media_type, body, apart from /sent_at |
| not deduplicated | two different keys are two intents; what the service does outside this call and outside its database |
| scope | two requests have one key where they share tenant, operation, key |
| answer kept for | 24 h (PT24H) |
| then refused for | 10 days (P10D) |
| after a crash | everything rolls back, and the retry runs |
| given again | 2XX, 3XX, 4XX; a repeat carries ` + "`" + `Idempotent-Replayed: true` + "`" + ` |
| not kept | 401, 403, 407, 408, 425, 429, 5XX: the key is free again |

| status | means | retry? | same key? |
|---|---|---|---|
| 2XX | done, now or before | no | – |
| 400 | Idempotency key required; Idempotency key not valid; Body ended early | as retryable says | as same_key says |
| 409 | First request still running | yes | yes |
| 410 | Done; result has expired; Done; full result was not kept | no | no |
| 413 | Body too large | no | yes |
| 422 | Key was used for another request | no | no |
| 429 | Too many requests for this account | yes | yes |
| 503 | Try again | yes | yes |
| 4XX of the service | refused for good; a repeat gets the same refusal | no | no |
| 401, 403, 407, 408, 425, 429 of the service | not now; nothing happened | yes | yes |
| 5XX of the service | undone; nothing happened | yes | yes |

` + "`" + `` + "`" + `` + "`" + `sh
KEY=$(uuidgen)   # once per intent; the same on every retry
curl -X POST -H "Idempotency-Key: $KEY" -H 'Content-Type: application/json' -d @body.json "$BASE/v1/payments"
` + "`" + `` + "`" + `` + "`" + `
`

const shopOpenAPI = `openapi: "3.1.0"
info:
  title: Shop
  version: "2.1"
paths:
  "/v1/accounts/{account}/mails/{rest}":
    parameters:
      - name: account
        in: path
        required: true
        schema:
          type: string
      - name: rest
        in: path
        required: true
        schema:
          type: string
        description: everything below
    post:
      operationId: send-mail.post.v1.accounts.account.mails.rest
      summary: send-mail
      parameters:
        - name: Idempotency-Key
          in: header
          required: false
          description: "A key that was issued for this operation. It stands for one intent: repeat it on every retry."
          schema:
            type: string
            minLength: 1
            maxLength: 255
      responses:
        "2XX":
          description: Done, now or by the first request with this key.
          headers:
            Idempotent-Replayed:
              description: true on an answer that was given before
              schema:
                type: string
                enum: ["true"]
        "400":
          description: Body ended early; Idempotency key not valid; Key was not issued for this operation.
          headers:
            Retry-After:
              description: seconds until a retry may help
              schema:
                type: integer
                minimum: 1
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum:
                          - key_empty
                          - key_malformed
                          - key_length
                          - key_multiple
                          - key_not_issued
                          - body_incomplete
        "409":
          description: First request still running; Key was used for another request; Outcome of the first request not known.
          headers:
            Retry-After:
              description: seconds until a retry may help
              schema:
                type: integer
                minimum: 1
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum: [in_progress, mismatch, in_doubt]
        "410":
          description: Done; full result was not kept; Done; result has expired.
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum: [expired, result_not_kept]
        "413":
          description: Body too large.
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum: [body_too_large]
        "429":
          description: Too many requests for this account.
          headers:
            Retry-After:
              description: seconds until a retry may help
              schema:
                type: integer
                minimum: 1
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum: [quota_exceeded]
        "503":
          description: It may have happened; Try again.
          headers:
            Retry-After:
              description: seconds until a retry may help
              schema:
                type: integer
                minimum: 1
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum: [draining, store_unavailable, record_unreadable, outcome_unknown]
      x-idempotency:
        profile: idempo
        operation: send-mail
        guard: leased
        onCrash: hold
        effects: outside
        keyedBy: [tenant, operation, key]
        retention: PT24H
        tombstone: forever
        staleResult: original
        key:
          in: header
          name: Idempotency-Key
          required: false
          format: string
          minLength: 1
          maxLength: 255
          issued: true
        mismatch:
          status: 409
          covers: [method, path, query, media_type, body]
        inProgress:
          status: 409
          retryAfter: true
          wait: PT5S
          max: PT15M30S
        inDoubt:
          status: 409
        expired:
          status: 410
          resource: true
        replayed:
          statuses: ["2XX", "3XX", "4XX", "502"]
          marker:
            header: Idempotent-Replayed
            value: "true"
        notKept: ["401", "403", "404", "407", "408", "425", "429", "5XX"]
  /v1/logs:
    post:
      responses:
        default:
          description: As the service answers.
      x-idempotency:
        supported: false
        reason: a line too many is no harm
  /v1/payments:
    post:
      operationId: create-payment.post.v1.payments
      summary: create-payment
      parameters:
        - name: Idempotency-Key
          in: header
          required: true
          description: Stands for one intent. Make it once, keep it, and repeat it on every retry; a new intent gets a new one.
          schema:
            type: string
            minLength: 1
            maxLength: 255
      responses:
        "2XX":
          description: Done, now or by the first request with this key.
          headers:
            Idempotent-Replayed:
              description: true on an answer that was given before
              schema:
                type: string
                enum: ["true"]
        "400":
          description: Body ended early; Idempotency key not valid; Idempotency key required.
          headers:
            Retry-After:
              description: seconds until a retry may help
              schema:
                type: integer
                minimum: 1
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum:
                          - key_missing
                          - key_empty
                          - key_malformed
                          - key_length
                          - key_multiple
                          - body_incomplete
        "409":
          description: First request still running.
          headers:
            Retry-After:
              description: seconds until a retry may help
              schema:
                type: integer
                minimum: 1
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum: [in_progress]
        "410":
          description: Done; full result was not kept; Done; result has expired.
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum: [expired, result_not_kept]
        "413":
          description: Body too large.
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum: [body_too_large]
        "422":
          description: Key was used for another request.
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum: [mismatch]
        "429":
          description: Too many requests for this account.
          headers:
            Retry-After:
              description: seconds until a retry may help
              schema:
                type: integer
                minimum: 1
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum: [quota_exceeded]
        "503":
          description: Try again.
          headers:
            Retry-After:
              description: seconds until a retry may help
              schema:
                type: integer
                minimum: 1
          content:
            application/problem+json:
              schema:
                allOf:
                  - "$ref": "#/components/schemas/IdempotencyProblem"
                  - type: object
                    properties:
                      code:
                        type: string
                        enum: [draining, store_unavailable, record_unreadable]
      x-idempotency:
        profile: idempo
        operation: create-payment
        guard: atomic
        onCrash: rollback
        effects: local
        keyedBy: [tenant, operation, key]
        retention: PT24H
        tombstone: P10D
        staleResult: original
        key:
          in: header
          name: Idempotency-Key
          required: true
          format: string
          minLength: 1
          maxLength: 255
        missing:
          status: 400
        mismatch:
          status: 422
          covers: [method, path, query, media_type, body]
          ignores: [/sent_at]
        inProgress:
          status: 409
          retryAfter: true
          wait: PT0S
          max: PT15M30S
        expired:
          status: 410
          resource: true
        replayed:
          statuses: ["2XX", "3XX", "4XX"]
          marker:
            header: Idempotent-Replayed
            value: "true"
        notKept: ["401", "403", "407", "408", "425", "429", "5XX"]
  /v1/settings:
    put:
      responses:
        default:
          description: As the service answers.
      x-idempotency:
        natural:
          reason: sets the whole state
components:
  schemas:
    IdempotencyProblem:
      type: object
      required: [type, title, status, detail, code, retryable, same_key]
      properties:
        type:
          type: string
          description: "urn:idempo:problem: and the code"
        title:
          type: string
          description: the same for all problems of a code
        status:
          type: integer
        detail:
          type: string
          description: what happened and what to do
        code:
          type: string
          description: branch on it
        retryable:
          type: boolean
          description: an automatic retry is expected to help
        same_key:
          type: boolean
          description: "the key is unspent or bound to this intent: keep it"
        key_ref:
          type: string
          description: the key as operators and logs name it
        retry_after:
          type: integer
          description: seconds, as Retry-After
        resource:
          type: object
          description: what the first request made
          properties:
            type:
              type: string
            id:
              type: string
        original_status:
          type: integer
        expired_at:
          type: string
          format: date-time
        mismatch:
          type: object
          description: the parts of the request that differ, never their values
`

const inboxAsyncAPI = `asyncapi: "3.0.0"
info:
  title: Shop
  version: "1"
channels:
  billing:
    address: orders.created
    messages:
      billing:
        name: billing
        headers:
          type: object
          properties:
            ce-id:
              type: string
              description: the identity of the message, the same on every delivery
          required: [ce-id]
  mail:
    address: mails
    messages:
      mail:
        name: mail
        headers:
          type: object
          properties:
            ce-id:
              type: string
              description: the identity of the message, the same on every delivery
operations:
  receive_billing:
    action: receive
    channel:
      "$ref": "#/channels/billing"
    messages:
      - "$ref": "#/channels/billing/messages/billing"
    x-idempotency:
      id:
        in: header
        name: ce-id
        required: true
      keyedBy: [tenant, subscriber, source, id]
      guard: atomic
      retention: forever
      sameIdOtherBody: park
      missingId: park
      order: latest
      orderKey: partitionkey
      attempts: 4
      deadLetter: kept with the receipts of billing, for a person
  receive_mail:
    action: receive
    channel:
      "$ref": "#/channels/mail"
    messages:
      - "$ref": "#/channels/mail/messages/mail"
    x-idempotency:
      id:
        in: header
        name: ce-id
        required: false
      keyedBy: [tenant, subscriber, source, id]
      guard: leased
      retention: P8D
      sameIdOtherBody: duplicate
      missingId: digest
      order: none
      attempts: 10
      deadLetter: kept with the receipts of mail, for a person
`
