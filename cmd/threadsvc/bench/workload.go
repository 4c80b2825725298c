package bench

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
)

// Workload says what the producers send. Every thread is one producer with one AppendEvents stream, which carries its runs
// one after the other; nobody announces them by StartRun.
type Workload struct {
	Threads int `json:"threads"`
	// Warmup and Runs are the runs of each thread, those before the measurement and those within.
	Warmup int `json:"warmup"`
	Runs   int `json:"runs"`
	// Tokens, ToolCalls and Deltas are the text deltas, the tool calls (each of argParts argument deltas) and the state
	// deltas of each run.
	Tokens    int `json:"tokens"`
	ToolCalls int `json:"tool_calls"`
	Deltas    int `json:"deltas"`
	// StateBytes is the size of the state, set in the first run of the warm-up.
	StateBytes size `json:"state_bytes"`
	// Batch is the number of events in one message; a run's last message may have fewer.
	Batch int `json:"batch"`
	// Snapshots says what each run restates at its end: none, messages, state or all.
	Snapshots string `json:"snapshots"`
	// KeepMessages, if above 0, makes each run end with a MESSAGES_SNAPSHOT of the newest so many messages, which drops the
	// others.
	KeepMessages int `json:"keep_messages"`
	// Seed decides about all texts.
	Seed uint64 `json:"seed"`
}

const (
	argParts      = 10
	wordsOfInput  = 12
	wordsOfResult = 40
	itemBytes     = 60   // the length of a value in the state
	itemsPerEvent = 4000 // of the events that set the state up
	epoch         = 1764547200000
)

// script writes the events of one thread.
type script struct {
	*Workload
	id       string
	random   *rand.Rand
	now      int64
	runs     int
	step     int      // in the state: the run that changed it last
	items    []string // in the state
	messages [][]byte // as MESSAGES_SNAPSHOT restates them
	events   [][]byte // of the run that is being written
}

// newScript returns the script of a thread. Threads with the same seed have the same state to begin with.
func newScript(w *Workload, id string, thread int) *script {
	s := &script{Workload: w, id: id, now: epoch, random: rand.New(rand.NewPCG(w.Seed, uint64(thread)+1))}
	shared := rand.New(rand.NewPCG(w.Seed, 0))
	const frame = len(`{"step":0000,"status":"working","items":{}}`)
	itemText := len(itemName(0)) + itemBytes + len(`"":"",`)
	for range max(0, int(w.StateBytes)-frame) / itemText {
		s.items = append(s.items, value(shared))
	}
	return s
}

func itemName(i int) string { return fmt.Sprintf("item-%06d", i) }

// value is a text of itemBytes bytes.
func value(random *rand.Rand) string {
	var text strings.Builder
	for text.Len() < itemBytes {
		text.WriteString(word(random))
		text.WriteByte(' ')
	}
	return text.String()[:itemBytes]
}

// run writes the events of the thread's next run. The first run sets the state up.
func (s *script) run(runID string) [][]byte {
	s.events = nil
	input := s.userMessage()
	s.emit(`"type":"RUN_STARTED","threadId":%q,"runId":%q,"protocolVersion":"1.1",`+
		`"input":{"threadId":%[1]q,"runId":%[2]q,"messages":[%s]}`, s.id, runID, input)
	if s.runs == 0 {
		s.setState()
	}
	s.runs++
	for call := range s.ToolCalls {
		s.assistant(s.share(s.Tokens, call), s.share(s.Deltas, call), true)
	}
	s.assistant(s.share(s.Tokens, s.ToolCalls), s.share(s.Deltas, s.ToolCalls), false)
	s.restate()
	s.emit(`"type":"RUN_FINISHED","threadId":%q,"runId":%q,"outcome":{"type":"success"},`+
		`"usage":[{"inputTokens":%d,"outputTokens":%d}]`, s.id, runID, 1000+s.random.IntN(9000), s.Tokens)
	return s.events
}

// share is the part of n that falls to one of the run's assistant messages.
func (s *script) share(n, message int) int {
	messages := s.ToolCalls + 1
	return n*(message+1)/messages - n*message/messages
}

// emit adds an event, with a timestamp, from its other members.
func (s *script) emit(format string, args ...any) {
	event := append(fmt.Appendf([]byte{'{'}, format, args...), `,"timestamp":`...)
	s.now += int64(s.random.IntN(40))
	s.events = append(s.events, fmt.Appendf(event, "%d}", s.now))
}

func (s *script) userMessage() []byte {
	message := fmt.Appendf(nil, `{"id":%q,"role":"user","content":%q}`, s.uuid(), words(s.random, wordsOfInput))
	s.messages = append(s.messages, message)
	return message
}

// assistant writes an assistant message of so many tokens with state deltas in between, and perhaps a tool call of it.
func (s *script) assistant(tokens, deltas int, call bool) {
	id := s.uuid()
	s.emit(`"type":"TEXT_MESSAGE_START","messageId":%q,"role":"assistant"`, id)
	var content strings.Builder
	written := 0
	for i := range tokens {
		token := word(s.random) + " "
		content.WriteString(token)
		s.emit(`"type":"TEXT_MESSAGE_CONTENT","messageId":%q,"delta":%q`, id, token)
		for ; written < deltas*(i+1)/tokens; written++ {
			s.stateDelta()
		}
	}
	for ; written < deltas; written++ {
		s.stateDelta()
	}
	s.emit(`"type":"TEXT_MESSAGE_END","messageId":%q`, id)
	message := fmt.Appendf(nil, `{"id":%q,"role":"assistant","content":%q`, id, content.String())
	if !call {
		s.messages = append(s.messages, append(message, '}'))
		return
	}
	s.toolCall(id, message)
}

// toolCall writes a tool call of the assistant message, whose text is begun in message, and its result.
func (s *script) toolCall(parent string, message []byte) {
	id, resultID := "call_"+s.uuid()[:24], s.uuid()
	s.emit(`"type":"TOOL_CALL_START","toolCallId":%q,"toolCallName":"search_documents","parentMessageId":%q`, id, parent)
	args := fmt.Sprintf(`{"query":"%s","limit":%d}`, words(s.random, argParts), s.random.IntN(50))
	for part := range argParts {
		s.emit(`"type":"TOOL_CALL_ARGS","toolCallId":%q,"delta":%q`, id,
			args[len(args)*part/argParts:len(args)*(part+1)/argParts])
	}
	s.emit(`"type":"TOOL_CALL_END","toolCallId":%q`, id)
	content := words(s.random, wordsOfResult)
	s.emit(`"type":"TOOL_CALL_RESULT","messageId":%q,"toolCallId":%q,"content":%q,"role":"tool"`, resultID, id, content)
	s.messages = append(s.messages,
		fmt.Appendf(message, `,"toolCalls":[{"id":%q,"type":"function","function":{"name":"search_documents","arguments":%q}}]}`,
			id, args),
		fmt.Appendf(nil, `{"id":%q,"role":"tool","content":%q,"toolCallId":%q}`, resultID, content, id))
}

// setState writes a snapshot of a state that holds no items and the deltas that add them.
func (s *script) setState() {
	s.emit(`"type":"STATE_SNAPSHOT","snapshot":{"step":0,"status":"working","items":{}}`)
	for from := 0; from < len(s.items); from += itemsPerEvent {
		var patch []byte
		for i := from; i < min(from+itemsPerEvent, len(s.items)); i++ {
			patch = fmt.Appendf(patch, `,{"op":"add","path":"/items/%s","value":%q}`, itemName(i), s.items[i])
		}
		s.emit(`"type":"STATE_DELTA","delta":[%s]`, patch[1:])
	}
}

// stateDelta replaces one item and the step.
func (s *script) stateDelta() {
	s.step = s.runs
	if len(s.items) == 0 {
		s.emit(`"type":"STATE_DELTA","delta":[{"op":"replace","path":"/step","value":%d}]`, s.step)
		return
	}
	i := s.random.IntN(len(s.items))
	s.items[i] = value(s.random)
	s.emit(`"type":"STATE_DELTA","delta":[{"op":"replace","path":"/items/%s","value":%q},{"op":"replace","path":"/step","value":%d}]`,
		itemName(i), s.items[i], s.step)
}

// restate writes the snapshots at the end of a run.
func (s *script) restate() {
	if s.Snapshots == "state" || s.Snapshots == "all" {
		s.emit(`"type":"STATE_SNAPSHOT","snapshot":%s`, s.state())
	}
	if keep := s.KeepMessages; keep > 0 && len(s.messages) > keep {
		s.messages = s.messages[len(s.messages)-keep:]
	} else if s.Snapshots != "messages" && s.Snapshots != "all" {
		return
	}
	list, _ := json.Marshal(rawList(s.messages))
	s.emit(`"type":"MESSAGES_SNAPSHOT","messages":%s`, list)
}

func rawList(texts [][]byte) []json.RawMessage {
	list := make([]json.RawMessage, len(texts))
	for i, text := range texts {
		list[i] = text
	}
	return list
}

// state is the state's text.
func (s *script) state() []byte {
	text := fmt.Appendf(nil, `{"step":%d,"status":"working","items":{`, s.step)
	for i, item := range s.items {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, `"%s":%q`, itemName(i), item)
	}
	return append(text, "}}"...)
}

// uuid is a random UUID of version 4.
func (s *script) uuid() string { return uuid(s.random) }

func uuid(random *rand.Rand) string {
	a, b := random.Uint64(), random.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff)
}

// vocabulary are the words of all texts, made of syllables.
var vocabulary = sync.OnceValue(func() []string {
	const size = 3000
	syllables := strings.Fields("a be ca de e fi ga ho i ja ke lo ma ne o pa qui ro se ta u ve wa xe yo za " +
		"an ber con del en for gen hin in ler men ner or per ran sion ter un ver tion ing est ous al ty ly")
	random := rand.New(rand.NewPCG(0, 0))
	list := make([]string, size)
	for i := range list {
		for range 1 + random.IntN(3) {
			list[i] += syllables[random.IntN(len(syllables))]
		}
	}
	return list
})

// word is a word; how often it comes falls with its rank, about as in natural text.
func word(random *rand.Rand) string {
	list, f := vocabulary(), random.Float64()
	return list[int(f*f*f*float64(len(list)))]
}

func words(random *rand.Rand, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = word(random)
	}
	return strings.Join(list, " ")
}
