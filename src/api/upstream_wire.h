// The other side of the wire: our requests to OpenAI-compatible servers, and what they answer.
//
// Servers differ, so reading is lenient where it is safe: null roles, missing usage, unknown
// members; strict where leniency would lose text: an event that is not JSON is an error.
//
// Thread safety: all functions may be called from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat.h"
#include "base/result.h"

namespace tare::api {

// The client's own body (so that fields we know nothing of reach the server), with another model
// name and, unless it asks for embeddings, streaming, and usage asked for when `want_usage`.
Result<std::string> UpstreamBody(const ChatRequest& request, std::string_view model,
                                 bool want_usage);

// The body of a request that goes on where an answer was cut: the same with what was written so far
// as the assistant's last message, to be continued (`continue_final_message`, as vLLM and Tare have
// it), or at the end of a completion's prompt; and `tokens_left` where the answer's length is
// bounded. Fails when the body is not as expected, and for what is one answer or none (a schema, a
// grammar): then nothing can go on.
Result<std::string> ContinuationBody(std::string_view wire_body, std::string_view written,
                                     std::optional<int> tokens_left);

// One server-sent event of an answer.
struct StreamEvent {
  std::vector<ChatChunk> chunks;
  std::optional<Usage> usage;
  std::optional<Error> error;  // a failure reported inside the stream
  bool done = false;           // "[DONE]"
};
Result<StreamEvent> ReadStreamEvent(std::string_view data);

// The failure a server answered with: kind from the status, the rest from the body where it has the
// OpenAI shape (or FastAPI's "detail"), else the body's beginning as the message.
Error ReadUpstreamError(int status, std::string_view body);

}  // namespace tare::api
