// The text of one choice while its tokens come in: decodes them, holds back what may be the
// beginning of a stop string, and says when one is complete.
//
// Thread safety: one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "model/text.h"

namespace tare::engine {

class AnswerText {
 public:
  // `text` may be null (tokens only) and must outlive this. `stop` strings are not empty.
  AnswerText(const model::Text* text, std::vector<std::string> stop);

  struct Piece {
    std::string text;      // may be shown now
    bool stopped = false;  // a stop string is complete; the text ends before it
  };
  // With `may_stop` false, stop strings that end within this token are text like any other.
  Piece Push(TokenId token, bool may_stop = true);
  // The answer ends for another reason: everything held back.
  std::string Finish();

 private:
  Piece Match(std::string_view fresh);

  std::optional<model::Detokenizer> detokenizer_;
  std::vector<std::string> stop_;
  std::string held_;
};

// Length of the longest end of `text` that is a proper beginning of one of `stop`.
std::size_t HeldBack(std::string_view text, const std::vector<std::string>& stop);

}  // namespace tare::engine
