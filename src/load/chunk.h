// What one piece of an OpenAI-style answer says that a measurement cares about. Role, usage and
// keep-alive chunks carry no tokens and must not count as any; reasoning and tool-call deltas do.
// Thread safety: one reader per thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tare::load {

struct ChunkFacts {
  bool well_formed = false;   // JSON of a shape that can be a chunk
  bool done = false;          // the closing "[DONE]"
  bool bears_tokens = false;  // non-empty content, reasoning, tool call or text
  int tokens = 0;             // told by the chunk itself (token_ids), else 1 when it bears any
  bool finished = false;      // a finish_reason
  bool has_usage = false;
  int prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;  // when has_usage
  // When the server sent it, monotonic ns, from the built-in pacing server; 0: not told.
  std::int64_t sent_ns = 0;
  std::string error;  // the message of an error object, when the server sent one
  std::string text;   // the answer's words in this piece (not its reasoning); KeepText only
};

class ChunkReader {
 public:
  ChunkReader();
  ~ChunkReader();
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  // Looks for the pacing server's stamps too.
  void ReadStamps(bool on) { stamps_ = on; }
  // Keeps the text, for conversations that go on from it.
  void KeepText(bool on) { text_ = on; }
  // One SSE event's data.
  ChunkFacts Read(std::string_view data);
  // A whole non-streamed answer: "message" or "text" instead of "delta".
  ChunkFacts ReadWhole(std::string_view body);

 private:
  ChunkFacts Parse(std::string_view json);
  struct Impl;
  std::unique_ptr<Impl> impl_;
  bool stamps_ = false;
  bool text_ = false;
};

}  // namespace tare::load
