// A stream that may have to go on elsewhere: what of it went out, and the request for what is left.
//
// Upstreams go on from a text, not from a state, so this needs requests whose answer is one text:
// one choice, no tools, no log probabilities, nothing that shapes the answer as a whole.
//
// Trailing blanks are special. Chat templates strip them from the message to be continued (Hugging
// Face's apply_chat_template does), and tokenizers begin a word with its blank: a model asked to go
// on after "so " writes a word without its usual token, or the blank again. So they are left out of
// the request, and out of the answer where it begins with them.
//
// Thread safety: none.
#pragma once

#include <memory>
#include <string>

#include "api/chat.h"
#include "base/result.h"

namespace tare::gateway {

class Continuation {
 public:
  // `wanted`: the route continues cut streams. Else nothing is kept.
  Continuation(const api::ChatRequest& request, bool wanted);

  // Whether what went out so far can be gone on from.
  bool possible() const { return possible_; }

  // A piece of the present attempt, which goes to the client: takes out what was written before.
  void Join(api::ChatChunk& chunk);

  // The request for what is left; from then on the attempt is one that goes on.
  Result<std::shared_ptr<const api::ChatRequest>> Rest(const api::ChatRequest& request);

  // The whole answer's usage, from what the last attempt says: what was written before it is part
  // of the answer, not of the client's prompt.
  api::Usage Whole(api::Usage last) const;

 private:
  bool possible_ = false;
  std::string written_;      // what went out
  int written_tokens_ = 0;   // of it: pieces, where an upstream does not tell tokens
  int carried_tokens_ = 0;   // of them, in the present attempt's prompt or written again
  int repeated_tokens_ = 0;  // of those, written again
  std::string blanks_;       // at the end of what went out, which the attempt may write again
};

}  // namespace tare::gateway
