// The loops MeasureLimits times, one set for each instruction set they need.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tare::kernels {

// Each runs `rounds` rounds and returns the operations done, so that nothing is optimised away.
std::int64_t ProbeFmaAvx2(std::int64_t rounds);
std::int64_t ProbeFmaAvx512(std::int64_t rounds);
std::int64_t ProbeVnniAvx512(std::int64_t rounds);
std::int64_t ProbeInt8Amx(std::int64_t rounds);
std::int64_t ProbeBf16Amx(std::int64_t rounds);

// Reads [data, data + bytes), a multiple of 512 bytes, and returns a value that depends on it.
std::uint64_t ReadScalar(const std::uint8_t* data, std::size_t bytes);
std::uint64_t ReadAvx2(const std::uint8_t* data, std::size_t bytes);
std::uint64_t ReadAvx512(const std::uint8_t* data, std::size_t bytes);

}  // namespace tare::kernels
