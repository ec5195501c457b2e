// Logging: one line per event on stderr, so that stdout carries only answers.
//
// Use the LogX functions with a format string; the text names the thing and, for warnings, what
// the user can do. Thread safety: all functions may be called from any thread.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace tare {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Called once by main before threads start; without it everything from kInfo up is logged.
void InitLogging(LogLevel level);

template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::debug(format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::info(format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogWarn(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::warn(format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::error(format, std::forward<Args>(args)...);
}

}  // namespace tare
