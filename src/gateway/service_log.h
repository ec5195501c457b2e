// The lines `tare serve` prints for the person who started it.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace tare::gateway {

template <typename... Args>
void Print(std::FILE* log, fmt::format_string<Args...> format, Args&&... args) {
  fmt::print(log, format, std::forward<Args>(args)...);
  std::fputc('\n', log);
  std::fflush(log);
}

}  // namespace tare::gateway
