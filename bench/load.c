// A closed-loop load driver: each of N keep-alive connections asks again as soon as its last answer has ended, or, with a RATE, in
// its turn, so that all together ask so many times a second. One thread, 127.0.0.1 only.
//
//   cc -O2 -o load load.c && ./load PORT CONNECTIONS SECONDS PATH BODY_FILE [KEY] [RATE]
//
// Prints one line of JSON: answers and failures, latencies in microseconds (percentiles over all answers), and for streams the
// events, the time to the first byte of the body and the transit of each content chunk, from the stamp that mock.c put into it.
// The first failure of a run is told on stderr.
#include "loopback.h"

enum { MOST_FLOWS = 1024, HEAD_ROOM = 16384, READ_AT_ONCE = 1 << 18, STAMP_DIGITS = 16 };

typedef enum { WAITING, HEAD, SIZED, UNTIL_CLOSE, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER, COMPLETE } stage;

typedef struct {
  stage stage;
  int status, began, ended_well, closes;
  char head[HEAD_ROOM + 1];
  size_t head_size, left;
  nanoseconds asked, due; // due: when it asks again, where it waits for its turn
  // Where the scan of a stream's text stands, since a read may end anywhere.
  int at_line_start, done_matched, stamp_digits;
  unsigned long long stamp;
} flow;

typedef struct {
  nanoseconds *values;
  size_t count, room;
} samples;

static flow *flows;
static struct pollfd *watched; // watched[i] is flows[i]
static int port;
static char *request;
static size_t request_size;
static int streamed;
static nanoseconds turn; // from one request of a connection to its next; 0: as soon as it can
static samples latency, first, transit;
static long answered, failed, events;

// --- figures ---

static void keep(samples *s, nanoseconds value) {
  if (s->count == s->room) {
    s->room = s->room ? s->room * 2 : 1 << 16;
    s->values = realloc(s->values, s->room * sizeof *s->values);
    if (!s->values) give_up("samples");
  }
  s->values[s->count++] = value;
}

static int by_value(const void *a, const void *b) {
  nanoseconds left = *(const nanoseconds *)a, right = *(const nanoseconds *)b;
  return (left > right) - (left < right);
}

static double percentile(const samples *s, double share) {
  return s->count ? (double)s->values[(size_t)(share * (double)(s->count - 1))] / 1000 : 0;
}

static void report(double seconds) {
  samples *all[] = {&latency, &first, &transit};
  for (int i = 0; i < 3; i++) qsort(all[i]->values, all[i]->count, sizeof *all[i]->values, by_value);
  printf("{\"answered\":%ld,\"failed\":%ld,\"seconds\":%.4f,\"p50\":%.1f,\"p95\":%.1f,\"p99\":%.1f,", answered, failed, seconds,
         percentile(&latency, .5), percentile(&latency, .95), percentile(&latency, .99));
  printf("\"first_p50\":%.1f,\"events\":%ld,\"stamps\":%zu,\"transit_p50\":%.1f,\"transit_p99\":%.1f}\n", percentile(&first, .5), events,
         transit.count, percentile(&transit, .5), percentile(&transit, .99));
}

// --- what an answer says ---

static void scan_stamp(flow *f, char c, nanoseconds time) {
  int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  if (digit < 0) {
    f->stamp_digits = c == '#' ? 1 : 0;
    f->stamp = 0;
    return;
  }
  if (!f->stamp_digits) return;
  f->stamp = f->stamp << 4 | (unsigned)digit;
  if (f->stamp_digits++ < STAMP_DIGITS) return;
  keep(&transit, time - (nanoseconds)f->stamp);
  f->stamp_digits = 0;
}

static void scan(flow *f, const char *text, size_t count, nanoseconds time) {
  static const char DONE[] = "data: [DONE]";
  for (size_t i = 0; i < count; i++) {
    char c = text[i];
    if (f->at_line_start && c == 'd') events++; // only `data:` lines begin so
    f->done_matched = c == DONE[f->done_matched] && (f->done_matched || f->at_line_start) ? f->done_matched + 1 : 0;
    if (f->done_matched == sizeof DONE - 1) f->ended_well = 1, f->done_matched = 0;
    f->at_line_start = c == '\n';
    scan_stamp(f, c, time);
  }
}

static void body(flow *f, const char *text, size_t count, nanoseconds time) {
  if (!f->began && count) f->began = 1, keep(&first, time - f->asked);
  if (streamed) scan(f, text, count, time);
}

// --- how an answer is framed: each takes some of the bytes and returns how many ---

static void read_head(flow *f) {
  const char *length = strcasestr(f->head, "\ncontent-length:");
  f->status = atoi(f->head + 9);
  f->closes = strcasestr(f->head, "\nconnection: close") != NULL;
  f->left = length ? strtoul(length + 16, NULL, 10) : 0;
  if (strcasestr(f->head, "\ntransfer-encoding: chunked")) f->stage = CHUNK_SIZE, f->left = 0;
  else if (!length) f->stage = UNTIL_CLOSE;
  else f->stage = f->left ? SIZED : COMPLETE;
}

static size_t take_head(flow *f, const char *bytes, size_t count) {
  size_t before = f->head_size, kept = count < HEAD_ROOM - before ? count : HEAD_ROOM - before;
  memcpy(f->head + before, bytes, kept);
  f->head[before + kept] = 0;
  f->head_size += kept;
  char *end = strstr(f->head, "\r\n\r\n");
  if (!end) return count;
  end[2] = 0;
  read_head(f);
  return (size_t)(end + 4 - f->head) - before;
}

static size_t take_data(flow *f, const char *bytes, size_t count, stage after, nanoseconds time) {
  size_t taken = count < f->left ? count : f->left;
  body(f, bytes, taken, time);
  f->left -= taken;
  if (!f->left) f->stage = after;
  return taken;
}

static size_t take_size_digit(flow *f, char c) {
  if (c >= '0' && c <= '9') f->left = f->left * 16 + (size_t)(c - '0');
  else if ((c | 32) >= 'a' && (c | 32) <= 'f') f->left = f->left * 16 + (size_t)((c | 32) - 'a' + 10);
  else if (c == '\n') f->stage = f->left ? CHUNK_DATA : TRAILER;
  return 1;
}

static size_t take_line_end(flow *f, char c, stage after) {
  if (c == '\n') f->stage = after;
  return 1;
}

static size_t take(flow *f, const char *bytes, size_t count, nanoseconds time) {
  switch (f->stage) {
  case HEAD: return take_head(f, bytes, count);
  case SIZED: return take_data(f, bytes, count, COMPLETE, time);
  case CHUNK_SIZE: return take_size_digit(f, *bytes);
  case CHUNK_DATA: return take_data(f, bytes, count, CHUNK_END, time);
  case CHUNK_END: return take_line_end(f, *bytes, CHUNK_SIZE);
  case TRAILER: return take_line_end(f, *bytes, COMPLETE); // nobody measured here sends a trailer
  case UNTIL_CLOSE: body(f, bytes, count, time); return count;
  default: return count;
  }
}

// --- the loop ---

static void connect_flow(int index) {
  struct sockaddr_in address = loopback(port);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) give_up("connect");
  prompt(fd);
  watched[index] = (struct pollfd){fd, POLLIN, 0};
}

static void ask(int index) {
  flow *f = &flows[index];
  *f = (flow){.stage = HEAD, .at_line_start = 1, .asked = now(), .due = f->due + turn};
  send_all(watched[index].fd, request, request_size); // a failure shows when the answer is read
}

static void count_answer(flow *f, nanoseconds time) {
  if (f->stage == COMPLETE && f->status == 200 && (f->ended_well || !streamed)) {
    answered++;
    keep(&latency, time - f->asked);
  } else if (!failed++) {
    size_t shown = strlen(f->head); // the head ends there; what came with it follows
    fprintf(stderr, "first failure: status %d, stage %d\n%.600s%.400s\n", f->status, f->stage, f->head, f->head + shown + (shown < f->head_size));
  }
}

// Whether the answer has ended, well or not.
static int read_answer(int index) {
  static char bytes[READ_AT_ONCE];
  flow *f = &flows[index];
  ssize_t count = recv(watched[index].fd, bytes, sizeof bytes, 0);
  if (count < 0 && errno == EAGAIN) return 0;
  nanoseconds time = now();
  if (count <= 0 && f->stage == UNTIL_CLOSE) f->stage = COMPLETE;
  if (count <= 0) f->closes = 1;
  for (ssize_t i = 0; i < count && f->stage != COMPLETE;) i += (ssize_t)take(f, bytes + i, (size_t)(count - i), time);
  if (f->stage != COMPLETE && count > 0) return 0;
  count_answer(f, time);
  return 1;
}

static int go_on(int index, nanoseconds end) {
  if (flows[index].closes || now() >= end) {
    close(watched[index].fd);
    watched[index].fd = -1;
    if (now() >= end) return 0;
    connect_flow(index);
  }
  if (turn) flows[index].stage = WAITING;
  else ask(index);
  return 1;
}

// Ask where it is time to; how long until the next turn.
static nanoseconds ask_in_turn(int connections) {
  nanoseconds time = now(), next = time + SECOND;
  for (int i = 0; i < connections; i++) {
    if (watched[i].fd < 0 || flows[i].stage != WAITING) continue;
    if (flows[i].due <= time) ask(i);
    else if (flows[i].due < next) next = flows[i].due;
  }
  return next - time;
}

static void drive(int connections, double seconds) {
  nanoseconds begin = now(), end = begin + (nanoseconds)(seconds * SECOND), latest = end + 20 * SECOND;
  int running = connections;
  for (int i = 0; i < connections; i++) flows[i] = (flow){.stage = WAITING, .due = begin + turn / connections * i};
  while (running && now() < latest) {
    nanoseconds rest = ask_in_turn(connections);
    if (wait_for(watched, (nfds_t)connections, rest) < 0 && errno != EINTR) give_up("poll");
    for (int i = 0; i < connections; i++)
      if (watched[i].fd >= 0 && watched[i].revents && read_answer(i)) running -= !go_on(i, end);
  }
  failed += running; // these never answered
  report((double)(now() - begin) / SECOND);
}

static char *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) give_up(path);
  long length = ftell(file);
  char *text = malloc((size_t)length + 1);
  rewind(file);
  if (!text || fread(text, 1, (size_t)length, file) != (size_t)length) give_up(path);
  fclose(file);
  text[length] = 0;
  *size = (size_t)length;
  return text;
}

static void write_request(const char *path, const char *file, const char *key) {
  size_t size;
  char *json = read_file(file, &size);
  streamed = strstr(json, "\"stream\":true") != NULL;
  request = malloc(size + 2048);
  if (!request) give_up("request");
  request_size = (size_t)snprintf(request, 2048,
                                  "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
                                  "User-Agent: OpenAI/Python 3.0\r\nX-Stainless-Lang: python\r\nAuthorization: Bearer %s\r\n"
                                  "Content-Length: %zu\r\n\r\n",
                                  path, port, key, size);
  memcpy(request + request_size, json, size);
  request_size += size;
  free(json);
}

int main(int argc, char **argv) {
  if (argc < 6) return fprintf(stderr, "load PORT CONNECTIONS SECONDS PATH BODY_FILE [KEY] [RATE]\n"), 2;
  int connections = atoi(argv[2]);
  if (connections < 1 || connections > MOST_FLOWS) return fprintf(stderr, "1 to %d connections\n", MOST_FLOWS), 2;
  signal(SIGPIPE, SIG_IGN);
  port = atoi(argv[1]);
  if (argc > 7 && atof(argv[7]) > 0) turn = (nanoseconds)(SECOND * connections / atof(argv[7]));
  write_request(argv[4], argv[5], argc > 6 ? argv[6] : "none");
  flows = calloc((size_t)connections, sizeof *flows);
  watched = calloc((size_t)connections, sizeof *watched);
  if (!flows || !watched) give_up("flows");
  for (int i = 0; i < connections; i++) connect_flow(i);
  drive(connections, atof(argv[3]));
  return 0;
}
