// A model server without a model, fast enough not to be what is measured. One thread, 127.0.0.1 only.
//
//   cc -O2 -o mock mock.c && ./mock PORT
//
// Answers POST /v1/chat/completions (whole or streamed), POST /v1/embeddings and GET /v1/models, and takes what OTLP
// sends to a collector. How it behaves is said inside the request, so that it can be said through any proxy: a word such as
//
//   bench:chunks=100,every=10,after=200,pause=1500
//
// in the first 4 KiB of the body. A stream has so many content chunks, so many milliseconds apart (0: each its own send, at
// once); the answer begins `after` milliseconds after the request is complete; reading of the body stops for `pause`
// milliseconds after its first piece, so that whoever sends it has to hold the rest.
// Each content chunk carries `#` and the nanoseconds of its sending in sixteen hexadecimal digits.
#include "loopback.h"

enum { MOST_PEERS = 1024, HEAD_ROOM = 16384, BODY_KEPT = 1 << 18, WORDS_WITHIN = 4096, READ_AT_ONCE = 1 << 18 };

typedef enum { READING_HEAD, READING_BODY, PAUSED, DUE, STREAMING } phase;

typedef struct {
  int fd;
  phase phase;
  char head[HEAD_ROOM + 1];
  size_t head_size;
  char *body; // its beginning only: what comes after BODY_KEPT is counted and dropped
  size_t body_size, body_left;
  nanoseconds due;
  int chunks, every, after, pause, usage;
} peer;

static peer *peers[MOST_PEERS];
static struct pollfd watched[MOST_PEERS + 1]; // [0] is the listener, [i + 1] is peers[i]
static size_t peer_count;
static unsigned streams;

static const char CHAT[] =
    "{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion\",\"created\":1767225600,\"model\":\"bench-model-2026\",\"choices\":[{\"index\":0,"
    "\"message\":{\"role\":\"assistant\",\"content\":\"Tides follow the moon and, less so, the sun: the water nearest to the moon is drawn "
    "most, the water farthest from it least, and so two bulges go round the turning earth.\",\"refusal\":null},\"logprobs\":null,"
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":31,\"completion_tokens\":42,\"total_tokens\":73,\"prompt_tokens_details\":"
    "{\"cached_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":0}},\"system_fingerprint\":\"fp_bench\"}";
static const char MODELS[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"bench-model\",\"object\":\"model\",\"created\":1767225600,\"owned_by\":\"bench\"}]}";
static const char NOTHING[] = ""; // an empty protobuf message: all of it was taken
static const char NOT_FOUND[] = "{\"error\":{\"message\":\"No such path.\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}";
static const char STREAM_HEAD[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\nx-request-id: req_bench\r\n"
    "Transfer-Encoding: chunked\r\n\r\n";
static const char STREAM_END[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

// --- answers: each returns 0, or -1 when the peer is gone ---

static int answer_whole(peer *p, const char *status, const char *json, size_t size) {
  static char out[1 << 16];
  int head = snprintf(out, sizeof out,
                      "HTTP/1.1 %s\r\nContent-Type: application/json\r\nx-request-id: req_bench\r\nopenai-processing-ms: 1\r\n"
                      "Content-Length: %zu\r\n\r\n",
                      status, size);
  memcpy(out + head, json, size);
  return send_all(p->fd, out, (size_t)head + size); // one send: two would cost the proxy a second wake-up
}

static int answer_embedding(peer *p) {
  static char json[16384];
  static size_t size;
  if (!size) {
    size = (size_t)sprintf(json, "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[0.015625");
    for (int i = 1; i < 1024; i++) size += (size_t)sprintf(json + size, ",%.6f", (i * 37 % 201 - 100) / 1600.0);
    size += (size_t)sprintf(json + size, "]}],\"model\":\"bench-model\",\"usage\":{\"prompt_tokens\":9,\"total_tokens\":9}}");
  }
  return answer_whole(p, "200 OK", json, size);
}

static int send_event(peer *p, const char *choices, const char *usage) {
  char event[640], framed[704];
  int size = snprintf(event, sizeof event,
                      "data: {\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1767225600,\"model\":\"bench-model-2026\","
                      "\"system_fingerprint\":\"fp_bench\",\"choices\":[%s]%s}\n\n",
                      choices, usage);
  int framed_size = snprintf(framed, sizeof framed, "%x\r\n%s\r\n", size, event);
  return send_all(p->fd, framed, (size_t)framed_size);
}

static int send_content(peer *p) {
  char choice[160];
  snprintf(choice, sizeof choice, "{\"index\":0,\"delta\":{\"content\":\" #%016llx\"},\"logprobs\":null,\"finish_reason\":null}", now());
  return send_event(p, choice, "");
}

static int end_stream(peer *p) {
  static const char *USAGE = ",\"usage\":{\"prompt_tokens\":31,\"completion_tokens\":100,\"total_tokens\":131}";
  if (send_event(p, "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}", "")) return -1;
  if (p->usage && send_event(p, "", USAGE)) return -1;
  p->phase = READING_HEAD;
  return send_all(p->fd, STREAM_END, sizeof STREAM_END - 1);
}

static int stream_on(peer *p) {
  do {
    if (p->chunks-- <= 0) return end_stream(p);
    if (send_content(p)) return -1;
  } while (!p->every);
  p->due += p->every * MILLISECOND; // from the plan, not from now: a late chunk doesn't slow the stream down
  return 0;
}

static int start_stream(peer *p) {
  if (send_all(p->fd, STREAM_HEAD, sizeof STREAM_HEAD - 1)) return -1;
  if (send_event(p, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}", "")) return -1;
  p->phase = STREAMING;
  // Streams that were asked for together would send in step for ever, and a reader would find all their chunks at one wake-up.
  // Steps of the golden section spread any number of them evenly.
  p->due = now() + (nanoseconds)(p->every * MILLISECOND * ((streams++ * 618) % 1000) / 1000);
  return p->every ? 0 : stream_on(p);
}

// --- requests ---

static int asks(const peer *p, const char *word) { return p->body && strstr(p->body, word) != NULL; }

static int is_for(const peer *p, const char *request) { return !strncmp(p->head, request, strlen(request)); }

static int answer(peer *p) {
  p->phase = READING_HEAD;
  if (is_for(p, "GET /v1/models")) return answer_whole(p, "200 OK", MODELS, sizeof MODELS - 1);
  if (is_for(p, "POST /v1/embeddings")) return answer_embedding(p);
  if (is_for(p, "POST /v1/traces") || is_for(p, "POST /v1/logs") || is_for(p, "POST /v1/metrics")) return answer_whole(p, "200 OK", NOTHING, 0);
  if (!is_for(p, "POST /v1/chat/completions")) return answer_whole(p, "404 Not Found", NOT_FOUND, sizeof NOT_FOUND - 1);
  char saved = 0;
  if (p->body_size > WORDS_WITHIN) saved = p->body[WORDS_WITHIN], p->body[WORDS_WITHIN] = 0; // don't search a long prompt
  int streamed = asks(p, "\"stream\":true") || asks(p, "\"stream\": true");
  if (saved) p->body[WORDS_WITHIN] = saved;
  if (!streamed) return answer_whole(p, "200 OK", CHAT, sizeof CHAT - 1);
  p->usage = asks(p, "\"include_usage\":true") || asks(p, "\"include_usage\": true"); // a gateway may have added it at the end
  return start_stream(p);
}

static int number_after(const char *words, const char *name, int otherwise) {
  const char *found = strstr(words, name);
  return found ? atoi(found + strlen(name)) : otherwise;
}

static void read_plan(peer *p) {
  char words[128] = "";
  char *found = p->body ? memmem(p->body, p->body_size < WORDS_WITHIN ? p->body_size : WORDS_WITHIN, "bench:", 6) : NULL;
  if (found) snprintf(words, sizeof words, "%.*s", (int)strcspn(found, "\" "), found);
  p->chunks = number_after(words, "chunks=", 50);
  p->every = number_after(words, "every=", 0);
  p->after = number_after(words, "after=", 0);
  p->pause = number_after(words, "pause=", 0);
}

static int request_complete(peer *p) {
  read_plan(p);
  if (!p->after) return answer(p);
  p->phase = DUE;
  p->due = now() + p->after * MILLISECOND;
  return 0;
}

static int take_body(peer *p, const char *bytes, size_t count) {
  if (count > p->body_left) return -1; // nobody measured here sends a request before it has the answer to the last
  size_t room = BODY_KEPT - p->body_size, kept = count < room ? count : room;
  int first = !p->body_size && kept;
  memcpy(p->body + p->body_size, bytes, kept);
  p->body_size += kept;
  p->body[p->body_size] = 0;
  p->body_left -= count;
  if (!p->body_left) return request_complete(p);
  if (!first) return 0;
  read_plan(p);
  if (p->pause) p->phase = PAUSED, p->due = now() + p->pause * MILLISECOND;
  return 0;
}

static int head_complete(peer *p) {
  const char *length = strcasestr(p->head, "\ncontent-length:");
  if (strcasestr(p->head, "\ntransfer-encoding:")) return -1; // every proxy measured here knows the length
  p->body_left = length ? strtoul(length + 16, NULL, 10) : 0;
  size_t room = p->body_left < BODY_KEPT ? p->body_left : BODY_KEPT;
  p->body = realloc(p->body, room + 1);
  if (!p->body) give_up("body");
  p->body_size = 0;
  p->body[0] = 0;
  p->phase = READING_BODY;
  return p->body_left ? 0 : request_complete(p);
}

static int take(peer *p, const char *bytes, size_t count) {
  if (p->phase == READING_BODY) return take_body(p, bytes, count);
  if (p->phase != READING_HEAD) return -1;
  size_t before = p->head_size, kept = count < HEAD_ROOM - before ? count : HEAD_ROOM - before;
  memcpy(p->head + before, bytes, kept);
  p->head[before + kept] = 0;
  p->head_size += kept;
  char *end = strstr(p->head, "\r\n\r\n");
  if (!end) return p->head_size == HEAD_ROOM ? -1 : 0;
  end[2] = 0;
  size_t used = (size_t)(end + 4 - p->head) - before;
  p->head_size = 0; // the next head overwrites this one, which stays readable until then
  if (head_complete(p)) return -1;
  return count > used ? take(p, bytes + used, count - used) : 0;
}

// --- the loop ---

static void welcome(int listener) {
  int fd;
  while (peer_count < MOST_PEERS && (fd = accept(listener, NULL, NULL)) >= 0) {
    prompt(fd);
    peer *p = calloc(1, sizeof *p);
    if (!p) give_up("peer");
    p->fd = fd;
    peers[peer_count++] = p;
    watched[peer_count] = (struct pollfd){fd, POLLIN, 0};
  }
}

static void dismiss(size_t index) {
  peer *p = peers[index];
  close(p->fd);
  free(p->body);
  free(p);
  peers[index] = peers[--peer_count];
  watched[index + 1] = watched[peer_count + 1];
}

static int read_from(peer *p) {
  static char bytes[READ_AT_ONCE];
  ssize_t count = recv(p->fd, bytes, sizeof bytes, 0);
  if (count < 0 && errno == EAGAIN) return 0;
  return count > 0 ? take(p, bytes, (size_t)count) : -1;
}

static int tick(peer *p, nanoseconds time) {
  if (p->due > time) return 0;
  if (p->phase == STREAMING) return stream_on(p);
  if (p->phase == DUE) return answer(p);
  p->phase = READING_BODY;
  return 0;
}

static int waits_for_time(const peer *p) { return p->phase == STREAMING || p->phase == DUE || p->phase == PAUSED; }

static nanoseconds until_next(void) {
  nanoseconds next = -1, time = now();
  for (size_t i = 0; i < peer_count; i++) {
    watched[i + 1].events = peers[i]->phase == PAUSED ? 0 : POLLIN;
    if (!waits_for_time(peers[i])) continue;
    nanoseconds span = peers[i]->due > time ? peers[i]->due - time : 0;
    if (next < 0 || span < next) next = span;
  }
  return next;
}

static void serve(int listener) {
  for (;;) {
    int ready = wait_for(watched, peer_count + 1, until_next());
    if (ready < 0 && errno != EINTR) give_up("poll");
    nanoseconds time = now();
    for (size_t i = peer_count; i-- > 0;) { // backwards: dismiss() moves the last peer into the gap
      int gone = 0;
      if (ready > 0 && watched[i + 1].revents) gone = read_from(peers[i]);
      if (!gone && waits_for_time(peers[i])) gone = tick(peers[i], time);
      if (gone) dismiss(i);
    }
    if (ready > 0 && watched[0].revents) welcome(listener);
  }
}

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "mock PORT\n"), 2;
  signal(SIGPIPE, SIG_IGN);
  int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = loopback(atoi(argv[1]));
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, MOST_PEERS)) give_up("listen");
  prompt(listener);
  watched[0] = (struct pollfd){listener, POLLIN, 0};
  serve(listener);
}
