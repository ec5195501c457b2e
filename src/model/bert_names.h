// The names of BERT's tensors in Hugging Face checkpoints and the common ones; private to the room.
#pragma once

#include <string>
#include <string_view>

namespace tare::model {

// "bert.encoder.layer.3.attention.self.query.weight" -> "blk.3.attn_q.weight". The prefix is there
// when the checkpoint was saved with a head; an unknown name stays as it is.
std::string BertToCommon(std::string_view name);
// The reverse, without the prefix.
std::string BertToHuggingFace(std::string_view common_name);
// Parts of checkpoints that make no difference to a token's vector: what follows the last layer
// (the pooler of BERT's own training task, heads of others) and tables of positions' numbers.
bool BertHasNoUseFor(std::string_view name);

}  // namespace tare::model
