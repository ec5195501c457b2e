// tokenizer.json from outside: parse, then use what was made. A file may be refused, never crash,
// and a tokenizer that was accepted must survive text.
#include <cstdint>
#include <string_view>

#include "model/detokenizer.h"
#include "model/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tare::model::Specials;
  using tare::model::Tokenizer;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = Tokenizer::FromJson(input);
  if (!tokenizer) return 0;
  for (const std::string_view text : {std::string_view("Hello <s> 12 中 \xFF\n\n"), input}) {
    for (const Specials specials : {Specials::kText, Specials::kTrusted, Specials::kGuarded}) {
      const auto ids = tokenizer->Encode(text.substr(0, 4096), {.specials = specials});
      if (ids) tokenizer->Decode(*ids);
    }
  }
  return 0;
}
