package idemhttp_test

import (
	"fmt"

	"github.com/idempo/idempo/idemhttp"
)

func ExampleParseKey() {
	for _, value := range []string{`order-81`, `"order-81";v=1`, `"order 81, part 2"`, `order-81, order-82`} {
		key, err := idemhttp.ParseKey(value)
		fmt.Printf("%s → %q %v\n", value, key, err)
	}
	// Output:
	// order-81 → "order-81" <nil>
	// "order-81";v=1 → "order-81" <nil>
	// "order 81, part 2" → "order 81, part 2" <nil>
	// order-81, order-82 → "" key_multiple: The header holds more than one idempotency key.
}

func ExampleFormatKey() {
	fmt.Println(idemhttp.FormatKey(`order "81"`))
	// Output:
	// "order \"81\""
}
