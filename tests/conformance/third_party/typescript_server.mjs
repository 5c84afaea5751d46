// A server on the TypeScript SDK, version 2: typescript_server.mjs PORT first|changed
//
// Stateless, 2026-07-28. `changed` is its next release: `find_book` wants another argument.
import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, fromJsonSchema, McpServer } from '@modelcontextprotocol/server';

const [port, release] = process.argv.slice(2);
const first = release === 'first';
const text = description => ({ type: 'string', description });

function build() {
  const server = new McpServer({ name: 'library', version: first ? '1.0.0' : '1.1.0' });
  const properties = {
    title: text('What the book is called.'),
    ...(first ? {} : { branch: text('The branch to look in.') })
  };
  const inputSchema = fromJsonSchema({ type: 'object', properties, required: Object.keys(properties) });
  server.registerTool(
    'find_book',
    { description: 'Finds a book in the library by its title.', inputSchema },
    ({ title, branch }) => ({ content: [{ type: 'text', text: `book ${title}: ${branch ?? 'row'} 7` }] })
  );
  server.registerTool('count_books', { description: 'Counts the books in the library.' }, () => ({
    content: [{ type: 'text', text: '42' }]
  }));
  return server;
}

createServer(toNodeHandler(createMcpHandler(build, { legacy: 'reject' }))).listen(Number(port), '127.0.0.1');
