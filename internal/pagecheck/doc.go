// Package pagecheck drives the dashboard in a real headless Chromium, as people use it: finds a payment, settles it, pages, exports,
// with and without JavaScript, light and dark, wide and narrow. An error on the browser's console, a page that violates its own
// security policy or one that scrolls sideways fails the test.
//
// It holds tests only, in a module of its own, so that chromedp is linked into nothing else. With -update the pictures under docs/img
// are made anew.
package pagecheck
