// Any bytes as an upstream's metrics, alone and after lines that are well: neither may crash, and
// what was understood before must still be there.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "gateway/scraped_load.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto alone = tare::gateway::ReadScrapedLoad(text);
  const auto after = tare::gateway::ReadScrapedLoad(
      std::string("vllm:num_requests_running{a=\"b\"} 3\n").append(text));
  if (!after || after->running < 3) std::abort();
  if (alone && alone->waiting != after->waiting) std::abort();
  return 0;
}
