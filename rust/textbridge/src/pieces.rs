//! What each token stands for as bytes. The `decoder` part of a tokenizer.json says how pieces were
//! spelled; knowing the spelling, one table replaces running the decoder over whole sequences, which
//! makes streaming exact and constant in cost per token.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value as Json;
use tokenizers::tokenizer::{AddedToken, DecoderWrapper, PreTokenizerWrapper};

use crate::ffi::{Failure, Outcome};

#[derive(Default)]
pub struct Pieces {
    pub bytes: Vec<u8>,
    pub byte_offsets: Vec<u32>,
    pub pieces: Vec<u8>,
    pub piece_offsets: Vec<u32>,
    pub special: Vec<u8>,
    pub strips_leading_space: bool,
}

/// How a vocabulary spells bytes.
#[derive(Default)]
struct Spelling {
    /// GPT-2's table: every byte is one printable character.
    byte_level: bool,
    /// Pieces like <0x0A> are bytes.
    byte_fallback: bool,
    /// Text replacements, SentencePiece's "▁" → " " above all.
    replacements: Vec<(String, String)>,
    /// WordPiece: pieces with this prefix continue a word, others begin one.
    continuation: Option<String>,
    strips_leading_space: bool,
}

impl Spelling {
    fn read(&mut self, decoder: &Json) {
        let text =
            |key: &str| decoder.get(key).and_then(Json::as_str).unwrap_or_default().to_string();
        match decoder.get("type").and_then(Json::as_str).unwrap_or_default() {
            "Sequence" => {
                for key in ["decoders", "pretokenizers"] {
                    for part in decoder.get(key).and_then(Json::as_array).into_iter().flatten() {
                        self.read(part);
                    }
                }
            }
            "ByteLevel" => self.byte_level = true,
            "ByteFallback" => self.byte_fallback = true,
            "Metaspace" => {
                self.replacements.push((text("replacement"), " ".to_string()));
                self.strips_leading_space = text("prepend_scheme") != "never";
            }
            "Replace" => {
                let pattern = decoder.pointer("/pattern/String").and_then(Json::as_str);
                if let Some(pattern) = pattern.filter(|p| !p.is_empty()) {
                    self.replacements.push((pattern.to_string(), text("content")));
                }
            }
            "Strip" => {
                let start = decoder.get("start").and_then(Json::as_u64).unwrap_or(0);
                self.strips_leading_space = text("content") == " " && start > 0;
            }
            "WordPiece" => {
                self.continuation = Some(text("prefix"));
                self.strips_leading_space = true;
            }
            "BPEDecoder" => self.replacements.push((text("suffix"), " ".to_string())),
            _ => {}
        }
    }

    fn bytes(&self, piece: &str) -> Vec<u8> {
        if self.byte_level {
            return byte_level_bytes(piece).unwrap_or_else(|| piece.as_bytes().to_vec());
        }
        if self.byte_fallback {
            if let Some(byte) = fallback_byte(piece) {
                return vec![byte];
            }
        }
        if let Some(prefix) = &self.continuation {
            return match piece.strip_prefix(prefix.as_str()) {
                Some(rest) => rest.as_bytes().to_vec(),
                None => format!(" {piece}").into_bytes(),
            };
        }
        let mut text = piece.to_string();
        for (from, to) in &self.replacements {
            text = text.replace(from, to);
        }
        text.into_bytes()
    }
}

/// "<0x0A>" → 10.
fn fallback_byte(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// GPT-2's table: printable Latin-1 stands for itself, the other bytes follow from U+0100 in order.
fn byte_level_chars() -> &'static [char; 256] {
    static TABLE: LazyLock<[char; 256]> = LazyLock::new(|| {
        let mut next = 256;
        std::array::from_fn(|byte| {
            let printable = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
            let code = if printable {
                byte as u32
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).expect("below the surrogates")
        })
    });
    &TABLE
}

pub fn byte_level_spelling(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| byte_level_chars()[*byte as usize]).collect()
}

/// The bytes a text in that spelling stands for; None when it has a character no byte is spelled by.
pub fn byte_level_bytes(spelled: &str) -> Option<Vec<u8>> {
    static TABLE: LazyLock<HashMap<char, u8>> = LazyLock::new(|| {
        (0..=255u8).map(|byte| (byte_level_chars()[byte as usize], byte)).collect()
    });
    spelled.chars().map(|c| TABLE.get(&c).copied()).collect()
}

pub fn piece_table<A>(
    vocabulary: HashMap<String, u32>,
    added: &A,
    decoder: Option<&DecoderWrapper>,
    pre_tokenizer: Option<&PreTokenizerWrapper>,
) -> Outcome<Pieces>
where
    for<'a> &'a A: IntoIterator<Item = (&'a u32, &'a AddedToken)>,
{
    let mut spelling = Spelling::default();
    match decoder {
        Some(decoder) => spelling.read(&serde_json::to_value(decoder).map_err(Failure::input)?),
        // Without a decoder the spelling can only be known from how text was taken apart.
        None => {
            if let Some(split) = pre_tokenizer {
                spelling.read(&serde_json::to_value(split).map_err(Failure::input)?);
            }
        }
    }

    // A hostile file may name an id near 2^32: the table must stay in proportion to the tokens.
    let size = vocabulary.values().max().map_or(0, |id| *id as usize + 1);
    if size > 4 * vocabulary.len() + (1 << 20) {
        return Err(Failure::input(format!(
            "{} tokens, but ids up to {}: too many are missing",
            vocabulary.len(),
            size - 1
        )));
    }
    let mut by_id: Vec<Option<&str>> = vec![None; size];
    for (piece, id) in &vocabulary {
        by_id[*id as usize] = Some(piece);
    }
    let mut special = vec![0u8; size];
    let mut literal = vec![false; size];
    for (id, token) in added {
        if let Some(slot) = by_id.get_mut(*id as usize) {
            *slot = Some(&token.content);
            special[*id as usize] = token.special as u8;
            literal[*id as usize] = true;
        }
    }

    let mut out = Pieces {
        special,
        strips_leading_space: spelling.strips_leading_space,
        ..Default::default()
    };
    out.byte_offsets.push(0);
    out.piece_offsets.push(0);
    for (id, piece) in by_id.iter().enumerate() {
        let piece = piece.unwrap_or_default();
        out.pieces.extend_from_slice(piece.as_bytes());
        if literal[id] {
            out.bytes.extend_from_slice(piece.as_bytes());
        } else {
            out.bytes.extend_from_slice(&spelling.bytes(piece));
        }
        let offset = |length: usize| {
            u32::try_from(length).map_err(|_| Failure::input("vocabulary above 4 GiB"))
        };
        out.byte_offsets.push(offset(out.bytes.len())?);
        out.piece_offsets.push(offset(out.pieces.len())?);
    }
    Ok(out)
}
