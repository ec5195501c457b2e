#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace tare {

void InitLogging(LogLevel level) {
  auto logger = spdlog::stderr_color_mt("tare");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%L%$ %v");
  switch (level) {
    case LogLevel::kDebug:
      logger->set_level(spdlog::level::debug);
      break;
    case LogLevel::kInfo:
      logger->set_level(spdlog::level::info);
      break;
    case LogLevel::kWarn:
      logger->set_level(spdlog::level::warn);
      break;
    case LogLevel::kError:
      logger->set_level(spdlog::level::err);
      break;
  }
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace tare
