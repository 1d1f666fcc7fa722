// What mock.c and load.c share: the clock whose readings travel inside chunks, sockets of 127.0.0.1, waiting for them.
#ifndef LOOPBACK_H
#define LOOPBACK_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 // macOS: SIGPIPE is ignored in main instead
#endif

#define MILLISECOND 1000000LL
#define SECOND 1000000000LL

typedef long long nanoseconds;

// Monotonic and common to all processes of the machine: a chunk's stamp is read back by the other program.
static inline nanoseconds now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * SECOND + t.tv_nsec;
}

static inline void give_up(const char *why) {
  perror(why);
  exit(1);
}

static inline struct sockaddr_in loopback(int port) {
  struct sockaddr_in address;
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_port = htons((unsigned short)port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

static inline void prompt(int fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

// Both programs write little and to readers that keep up, so a full socket is waited for; one that stays full is given up.
static inline int send_all(int fd, const char *bytes, size_t count) {
  while (count) {
    ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) {
      struct pollfd writable = {fd, POLLOUT, 0};
      if (poll(&writable, 1, 5000) != 1) return -1;
      continue;
    }
    if (sent < 0) return -1;
    bytes += sent;
    count -= (size_t)sent;
  }
  return 0;
}

// poll() counts in milliseconds, which would bunch the chunks of many paced streams into one wake-up of whoever reads them.
static inline int wait_for(struct pollfd *list, nfds_t count, nanoseconds span) {
#ifdef __linux__
  struct timespec limit = {span / SECOND, span % SECOND};
  return ppoll(list, count, span < 0 ? NULL : &limit, NULL);
#else
  return poll(list, count, span < 0 ? -1 : (int)((span + MILLISECOND - 1) / MILLISECOND));
#endif
}

#endif
