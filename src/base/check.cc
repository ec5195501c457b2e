#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tare {

void CheckFailed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, expression);
  std::abort();
}

}  // namespace tare
