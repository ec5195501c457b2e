// Answers as they go over the wire: whole OpenAI responses and server-sent events.
//
// A stream is: the role event of each choice (chat only), text events, one finish event per choice,
// a usage event when asked for, "[DONE]". A stream that fails ends with an error event and without
// "[DONE]", so that a cut answer cannot be taken for a complete one.
//
// Thread safety: plain values, one thread at a time.
// Source: OpenAI API reference (chat.completion, chat.completion.chunk, text_completion), WHATWG
// HTML 9.2 (server-sent events).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api/chat.h"
#include "api/delta_extras.h"
#include "base/result.h"

namespace tare::api {

// What every event and answer of one request repeats.
struct AnswerHead {
  std::string id;            // "chatcmpl-..." or "cmpl-..."
  std::string model;         // as the client named it
  std::int64_t created = 0;  // Unix seconds
  bool chat = true;          // else a plain completion
};

// Makes the events of one stream. Each method appends whole events to `out`.
class EventWriter {
 public:
  EventWriter(const AnswerHead& head, bool include_usage);

  // Nothing for a plain completion.
  void Role(std::string& out, int choice) const;
  // The chunk's text, when it has some, then its finish, when it has one.
  void Chunk(std::string& out, const ChatChunk& chunk);
  // Nothing unless usage was asked for.
  void UsageIfWanted(std::string& out, const Usage& usage) const;
  void Done(std::string& out) const;
  void Error(std::string& out, const tare::Error& error) const;

 private:
  void Begin(std::string& out, int choice) const;
  void EndEvent(std::string& out) const;

  const bool chat_;
  const bool include_usage_;
  std::string prefix_;                     // "data: {...,\"choices\":["
  std::vector<std::size_t> text_offsets_;  // characters sent, by choice
};

// Puts chunks together to one answer. One thread at a time.
class AnswerCollector {
 public:
  void Add(ChatChunk chunk);
  // The whole response body.
  std::string Write(const AnswerHead& head, const Usage& usage) const;

 private:
  std::vector<ChatChunk> choices_;  // by index; text and logprobs joined
  std::map<std::size_t, DeltaExtras> extras_;
};

}  // namespace tare::api
