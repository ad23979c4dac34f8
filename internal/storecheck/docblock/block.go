package docblock

import (
	"errors"
	"fmt"
	"strings"
)

// Block is a fenced block of a page.
type Block struct {
	Line int    // of the opening fence, from 1
	Lang string // sh, go, yaml, …; bash, shell and console count as sh
	Text string // without the fences; ends in a newline unless empty
	Do   Do
	Arg  string // of Do: a path#region, a reason, a file name, the text to wait for
	Exit int    // of DoRun: the exit code to expect
	Want *Block // of DoRun: the block that shows its output; nil if there is none
	from int    // the index of the first line of Text
	to   int    // the index of the closing fence
}

// Do is what becomes of a block.
type Do string

// The words of the comments.
const (
	DoNothing Do = ""                    // another language: prose
	DoRun     Do = "run"                 // a shell block, in the page's folder
	DoRoot    Do = "run in root"         // a shell block, in the folder of the repository
	DoStart   Do = "start until"         // a shell block that stays in the background once it has printed Arg
	DoStay    Do = "start in root until" // the same, in the folder of the repository
	DoShow    Do = "shown only"          // a block that a test cannot run, for the reason in Arg
	DoCopy    Do = "same as"             // a block that repeats a region of a file: path#region
	DoFile    Do = "file"                // a block that is written to the page's folder under the name Arg
	DoOutput  Do = "output"              // what the shell block before it prints
)

// Page is a parsed page.
type Page struct {
	Blocks []*Block
	Ports  []string // numbers that the page calls its ports; a run puts free ones in their place
	lines  []string
}

// Parse reads a Markdown page. It returns an error that names the line for a comment it does not know, a Go block
// without a comment, an output without a command, and a fence that is not closed.
func Parse(text string) (*Page, error) {
	p := &Page{lines: strings.SplitAfter(text, "\n")}
	note := ""
	for i := 0; i < len(p.lines); i++ {
		line := strings.TrimSpace(p.lines[i])
		switch {
		case strings.HasPrefix(line, "<!--") && strings.HasSuffix(line, "-->"):
			note = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(line, "<!--"), "-->"))
			if ports, ok := strings.CutPrefix(note, "ports:"); ok {
				p.Ports, note = append(p.Ports, strings.Fields(ports)...), ""
			}
		case strings.HasPrefix(line, "```"):
			b, err := p.block(i, note)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			i, note = b.to, ""
		case line != "":
			note = ""
		}
	}
	return p, nil
}

// block reads the block whose opening fence is line i.
func (p *Page) block(i int, note string) (*Block, error) {
	fence := strings.TrimSpace(p.lines[i])
	lang, _, _ := strings.Cut(strings.TrimLeft(fence, "`"), " ")
	if lang == "bash" || lang == "shell" || lang == "console" {
		lang = "sh"
	}
	b := &Block{Line: i + 1, Lang: lang, from: i + 1, to: -1}
	for j := i + 1; j < len(p.lines); j++ {
		if strings.TrimSpace(p.lines[j]) == "```" {
			b.to = j
			break
		}
		b.Text += p.lines[j]
	}
	if b.to < 0 {
		return nil, errors.New("the block is not closed")
	}
	if err := b.annotate(note); err != nil {
		return nil, err
	}
	if b.Do == DoOutput {
		last := p.last()
		if last == nil || last.Do != DoRun && last.Do != DoRoot {
			return nil, errors.New("an output follows no command")
		}
		last.Want = b
	}
	p.Blocks = append(p.Blocks, b)
	return b, nil
}

func (p *Page) last() *Block {
	if len(p.Blocks) == 0 {
		return nil
	}
	return p.Blocks[len(p.Blocks)-1]
}

// annotate says what becomes of the block.
func (b *Block) annotate(note string) error {
	word, arg, _ := strings.Cut(note, ":")
	word, b.Arg = strings.TrimSpace(word), strings.TrimSpace(arg)
	if left, code, ok := strings.Cut(word, ", exit "); ok {
		if _, err := fmt.Sscan(code, &b.Exit); err != nil {
			return fmt.Errorf("exit code %q: %w", code, err)
		}
		word = left
	}
	b.Do = Do(word)
	switch b.Do {
	case DoNothing:
		switch b.Lang {
		case "sh":
			b.Do = DoRun
		case "go":
			return errors.New("a Go block needs <!-- same as: path#region --> or <!-- shown only: why -->")
		}
	case DoRun, DoRoot:
		if b.Lang != "sh" {
			return fmt.Errorf("only sh blocks are run, not %q", b.Lang)
		}
	case DoStart, DoStay, DoShow, DoCopy, DoFile:
		if b.Arg == "" {
			return fmt.Errorf("%q needs something after a colon", word)
		}
	case DoOutput:
	default:
		return fmt.Errorf("there is no word %q for a block", word)
	}
	return nil
}

// Replace returns the page with another text in one of its blocks.
func (p *Page) Replace(b *Block, text string) string {
	return strings.Join(p.lines[:b.from], "") + text + strings.Join(p.lines[b.to:], "")
}
