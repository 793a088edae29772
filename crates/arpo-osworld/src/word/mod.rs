//! Text documents: docx as python-docx reads it, odt as odfpy does.

pub mod docx;
pub mod odt;
