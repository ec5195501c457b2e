// Strong types for quantities that are easily confused. All are plain values; none allocates.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>

namespace tare {

// Index into a model's vocabulary.
enum class TokenId : std::int32_t {};
constexpr std::int32_t ToInt(TokenId id) { return static_cast<std::int32_t>(id); }

// One sequence (a prompt and its continuation) within one engine; never reused while it runs.
enum class SequenceId : std::uint64_t {};
constexpr std::uint64_t ToInt(SequenceId id) { return static_cast<std::uint64_t>(id); }

// One page of the KV pool (kTokensPerPage tokens of every layer).
enum class PageId : std::uint32_t {};
constexpr std::uint32_t ToInt(PageId id) { return static_cast<std::uint32_t>(id); }

// Monotonic time and durations. Wall-clock times are std::chrono::system_clock::time_point.
using Nanos = std::chrono::nanoseconds;
constexpr double ToSeconds(Nanos t) { return std::chrono::duration<double>(t).count(); }
constexpr Nanos FromSeconds(double s) { return Nanos(static_cast<std::int64_t>(s * 1e9)); }

// Money in micro-units of a currency (1 USD = 1,000,000), so that sums are exact.
struct MicroUsd {
  std::int64_t value = 0;
  auto operator<=>(const MicroUsd&) const = default;
};

}  // namespace tare
