// The built-in pacing server of the load tester as a process of its own, so that other load testers
// can be run against the very server `tare load` is: bench/compare_load_testers.py does.
//
//   pacing_server [FIRST_TOKEN_US] [GAP_US] [THREADS]
//
// Prints its URL and serves until its standard input ends.
#include <cstdio>
#include <cstdlib>

#include "load/pacing_server.h"

int main(int argc, char** argv) {
  const auto number = [&](int i, int absent) { return argc > i ? std::atoi(argv[i]) : absent; };
  tare::load::PacingOptions options;
  options.first_token = std::chrono::microseconds(number(1, 0));
  options.gap = std::chrono::microseconds(number(2, 0));
  options.threads = number(3, 1);
  const auto server = tare::load::PacingServer::Start(options);
  if (!server) {
    std::fprintf(stderr, "pacing_server: %s\n", server.error().message.c_str());
    return 3;
  }
  std::printf("%s\n", (*server)->url().c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
