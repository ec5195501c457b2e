// Small helpers over the C ABI of rust/textbridge; private to the room.
#pragma once

#include <textbridge.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tare::model {

inline tb_slice ToSlice(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Owns what the bridge filled; empty until then.
struct BridgeBuffer {
  BridgeBuffer() = default;
  BridgeBuffer(const BridgeBuffer&) = delete;
  BridgeBuffer& operator=(const BridgeBuffer&) = delete;
  ~BridgeBuffer() { tb_buffer_free(value); }
  std::string_view view() const { return {reinterpret_cast<const char*>(value.data), value.size}; }
  tb_buffer value{};
};

struct BridgeNumbers {
  BridgeNumbers() = default;
  BridgeNumbers(const BridgeNumbers&) = delete;
  BridgeNumbers& operator=(const BridgeNumbers&) = delete;
  ~BridgeNumbers() { tb_numbers_free(value); }
  std::span<const std::uint32_t> span() const { return {value.data, value.size}; }
  tb_numbers value{};
};

// The bridge's status as an error: `input` for faults of the input.
inline tl::unexpected<Error> BridgeFail(std::int32_t status, const BridgeBuffer& error,
                                        ErrorKind input, std::string_view what) {
  // A panic is an input the crate's authors did not foresee: the input's fault to its sender, and
  // worth a report, hence the word.
  const char* note = status == TB_PANIC ? " (the library gave up: please report this input)" : "";
  return Fail(input, "{}: {}{}", what, error.view(), note);
}

}  // namespace tare::model
