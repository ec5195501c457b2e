#include "engine/answer_text.h"

#include <algorithm>

namespace tare::engine {

AnswerText::AnswerText(const model::Text* text, std::vector<std::string> stop)
    : stop_(std::move(stop)) {
  if (text != nullptr) detokenizer_.emplace(text->tokenizer());
}

std::size_t HeldBack(std::string_view text, const std::vector<std::string>& stop) {
  std::size_t held = 0;
  for (const std::string& word : stop) {
    for (std::size_t n = std::min(word.size() - 1, text.size()); n > held; --n) {
      if (text.substr(text.size() - n) == std::string_view(word).substr(0, n)) {
        held = n;
        break;
      }
    }
  }
  return held;
}

AnswerText::Piece AnswerText::Match(std::string_view fresh) {
  held_ += fresh;
  std::size_t end = std::string::npos;
  for (const std::string& word : stop_) end = std::min(end, held_.find(word));
  Piece piece;
  if (end != std::string::npos) {
    piece.stopped = true;
    piece.text = held_.substr(0, end);
    held_.clear();
    return piece;
  }
  const std::size_t shown = held_.size() - HeldBack(held_, stop_);
  piece.text = held_.substr(0, shown);
  held_.erase(0, shown);
  return piece;
}

AnswerText::Piece AnswerText::Push(TokenId token, bool may_stop) {
  if (!detokenizer_) return {};
  std::string fresh = detokenizer_->Push(token);
  if (may_stop && !stop_.empty()) return Match(fresh);
  return {std::exchange(held_, {}) + fresh, false};
}

std::string AnswerText::Finish() {
  if (!detokenizer_) return {};
  return std::exchange(held_, {}) + detokenizer_->Finish();
}

}  // namespace tare::engine
