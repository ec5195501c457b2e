// Embeddings as they go over the wire, both ways. ReadEmbeddingsRequest is with the other readers
// (request_reader.h).
//
// An answer's "data" array is made by whoever makes the vectors, in the encoding the client asked
// for, and passed on as it is: what a remote server sent reaches the client unchanged.
//
// Thread safety: all functions may be called from any thread.
// Source: OpenAI API reference (CreateEmbeddingRequest, CreateEmbeddingResponse).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/chat.h"
#include "api/wire_writer.h"
#include "base/result.h"

namespace tare::api {

// Appends one entry of "data": the vector as JSON numbers, or as the base64 of little-endian F32.
void AppendEmbedding(std::string& out, std::size_t index, std::span<const float> vector,
                     bool base64);

// The whole answer; `data` is its entries, joined by commas.
std::string WriteEmbeddings(const AnswerHead& head, std::string_view data, const Usage& usage);

// What a server answered.
struct EmbeddingsAnswer {
  std::string data;  // the entries as it wrote them, without the brackets
  Usage usage;       // zero where it told none
};
Result<EmbeddingsAnswer> ReadEmbeddingsAnswer(std::string_view body);

}  // namespace tare::api
